"""Processes that call slow reward functions, within limits of time and memory.

dispatcher.py  the thread that hands out jobs, enforces the limits and replaces workers
handle.py      the main process's end of one worker
supervisor.py  the process between both: starts workers, and kills all that they leave running
worker.py      the worker process: loads functions, then calls them
jobs.py        what is sent to a worker, how it judges that, and how the answer is checked
turns.py       what a worker does for an environment, tools.py for tools, and conversations.py for what has a state
"""
