"""What a guest can really reach, tried from inside: the catalogue, the run, the judgement.

`agentd probe` (agentd/src/probe*.c) makes the tries and says what came of each; here is known what
each means and which are meant to be open in which sandbox.
"""
