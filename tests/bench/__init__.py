"""Speed beside what people would use instead: one workload, one run, exact or disqualified.

`workload` writes the records, `oracle` says what must come of them, `contenders` do the job on a
real broker, `race` runs and measures them, `report` puts it into a table.
"""
