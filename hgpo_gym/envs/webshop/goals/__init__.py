"""Goals: a `goal`, all goals of a catalogue (`goal_list`), the draw of their price limits (`drawing`), and searches
made from an instruction (`queries`)."""
