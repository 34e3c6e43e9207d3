"""Pure decisions: standard library and numpy only. No clock, thread, socket, file or ctypes; time is an argument."""
