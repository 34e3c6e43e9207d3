"""Chat templates in the manners of several model families, written for the tests."""

# Tools first, JSON calls; takes everything.
CHATML_TOOLS = """
{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'system' and loop.first %}{% continue %}{% endif %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{ '<tool_call>' }}{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments
   if call.function.arguments is string else call.function.arguments | tojson }}}</tool_call>
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined
   and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

# SmolLM2's manner: no tools, a system message of its own where none is given.
PLAIN = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are helpful.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

# Gemma's manner: writes BOS, refuses system messages and repeated roles, trims.
STRICT = """{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{{- '<|im_start|>' + ('model' if message.role == 'assistant' else message.role) + '\n' + message.content | trim }}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"""

# Mistral's manner: calls as objects, ids of nine characters, one system message.
SHORT_IDS = """{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}{{ raise_exception('Only the first may be system') }}{% endif %}
{%- if message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}
{{- '[RESULT ' + message.tool_call_id + ']' + message.content }}
{%- elif message.tool_calls %}
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}
{{- '[CALL ' + call.id + ']' + call.function.name + (call.function.arguments | tojson) }}
{%- endfor %}
{%- else %}{{ '[' + message.role + ']' + message.content }}{% endif %}
{%- endfor %}"""

# Content only as parts; one call a message; arguments taken apart; opens the reasoning itself.
PARTS = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.tool_calls and message.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- if message.content is not string %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}{{ call.function.name }}
{%- for key, value in call.function.arguments | items %}<{{ key }}={{ value }}>{% endfor %}{% endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if functions %}{{ functions | tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"""

ALL = {"chatml": CHATML_TOOLS, "plain": PLAIN, "strict": STRICT, "short-ids": SHORT_IDS, "parts": PARTS}
