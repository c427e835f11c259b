"""A bench from request to result: check what was asked for, plan the runs, measure and store each."""
