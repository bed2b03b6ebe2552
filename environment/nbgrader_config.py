# What nbgrader 0.9 needs for notebooks of the kernel "Go (Lockstep)". Copy these lines into
# the nbgrader_config.py of your course; notebooks/course/README.md describes the rest.
c = get_config()  # noqa: F821
c.ClearSolutions.code_stub = {"go": "// YOUR CODE HERE"}
c.Execute.timeout = 900  # seconds for a cell; nbgrader's default of 30 ends a training sweep
