"""`headstart demo` and `headstart bench`: the promises, shown on real text and measured on generated models."""
