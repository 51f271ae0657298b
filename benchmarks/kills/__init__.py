"""A thousand SIGKILLs: training is killed at random instants, resumed, and compared with a run that was not killed."""
