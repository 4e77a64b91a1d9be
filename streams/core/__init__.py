"""The rules: plain functions from values to values. No clock, no environment, no input or output.

Read in the order of the journey: `identity`, `event`, `envelope`, `catalogue`, `window`, `verdict`,
`level`, `cell`, `fact`, `lane`, `meter_event`, `publication`, `retry`, `dead_letter`, `review`,
`audit`.
"""
