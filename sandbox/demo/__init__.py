"""The demo: one story on the real stack, with faults in the middle and a proof at the end."""
