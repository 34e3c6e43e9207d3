"""The library's side: models, caches, steps, samplers, vocabularies, grammars and GGUF files. llama_cpp lives here."""
