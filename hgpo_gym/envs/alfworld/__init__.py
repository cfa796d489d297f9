"""ALFWorld: household tasks in text, on the games of the alfworld package."""
