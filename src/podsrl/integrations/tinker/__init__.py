"""Tinker's API: a service that samples and trains (`rollouts.generator = "tinker"`). See docs/tinker.md.

kind        what a run knows of it before it begins: options, refusals, the seams of `podsrl.generate.Training`
service     the four verbs, over the service's own client; every fault becomes one line
generator   the generator: rollouts come from the service
updater     the update: kept rollouts go to the service; and the policy, whose weights are there
datums      kept rollouts as the service's records, with its loss
costs       what a step costs in tokens, and in money by the user's prices
"""
