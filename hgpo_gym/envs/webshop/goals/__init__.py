"""What is to be bought: a `goal`, all goals of a catalogue (`goal_list`), how their price limits are drawn (`drawing`),
and searches made from an instruction (`queries`)."""
