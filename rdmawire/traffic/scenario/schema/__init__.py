"""Everything that a scenario may say, as tables: keys, their kinds, what they mean."""
