"""HTTP dialects: requests to what chat and the worker take, replies to what clients expect. pydantic lives here."""
