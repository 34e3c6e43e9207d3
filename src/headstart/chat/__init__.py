"""Messages to text to tokens with cut points, and tokens back to reasoning, tool calls and content."""
