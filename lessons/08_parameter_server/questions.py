"""Questions on lesson 08: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 08 --check.
"""

# %% [markdown]
# ## 1. A slow worker
# Four workers train with an asynchronous server, and a gradient takes each of them one second. The
# three others push before it arrives, so its staleness is 3. Edit: worker 3 takes four seconds. What is the
# mean staleness of all gradients that the server applies, while all four work?
#
# - a: more than 4: the gradients of worker 3 are 12 updates old
# - b: about 2.25: most gradients come from the fast workers, and fewer pushes come before them
# - c: about 3

# %%
PREDICTION_1 = ""
SECONDS = (1, 1, 1, 1)


# %% [markdown]
# ## 2. A second worker
# One worker trains w with the loss w² / 2 at the rate 1.2, with a server that uses this rate for each
# gradient. Training converges for rates below 2, and w goes from 1 to 0. Edit: two workers, equally fast,
# each with half of a batch. Where does w go?
#
# - a: to 0, in half of the time
# - b: away from 0
# - c: to 0, more slowly: the second of two gradients is one update old

# %%
PREDICTION_2 = ""
WORKERS = 1


# %% [markdown]
# ## 3. More servers
# Eight workers wait for each other in each round (`staleness=0`), and one server holds all parameters. The
# messages take all the time, and a link carries one message in and one out at a time. Edit: eight servers,
# each with an eighth of the parameters. How much faster is a round?
#
# - a: 4.5 times
# - b: 8 times: each server gets an eighth of the bytes
# - c: twice: a worker's link carries as many bytes as before

# %%
PREDICTION_3 = ""
SERVERS = 1


if __name__ == "__main__":
    print("seconds of a gradient:", SECONDS, "workers:", WORKERS, "servers:", SERVERS)
