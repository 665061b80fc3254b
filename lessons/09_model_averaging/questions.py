"""Questions on lesson 09: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 09 --check.
"""

# %% [markdown]
# ## 1. The mean of two right networks
# Two ranks have a network with two hidden neurons each: y = 1 relu(1 x) - 1 relu(-1 x), which is y = x. Both
# are right, so training changes nothing, and at the end they take the mean of their weights. On rank 1 the
# hidden neurons are in the order below. Edit: let rank 1 have them in the other order, [1, 0]. What is the
# output of the averaged network for x = 3?
#
# - a: 3: both networks have the output 3, and so has their mean
# - b: 0
# - c: 1.5: half of the neurons cancel

# %%
PREDICTION_1 = ""
ORDER_ON_RANK_1 = [0, 1]

# %% [markdown]
# ## 2. An average now and then
# Two ranks train one weight w by local SGD. Rank 0 has only a sample for which w = 0 is best, rank 1 only
# one for which w = 1 is best, with a gradient four times as steep. For both samples together w = 0.8 is
# best, and with an average after every step they get there. Edit: an average after every 64 steps. Where do
# they end?
#
# - a: at 0.5
# - b: at 0.8, but later: there are fewer averages, with the same effect
# - c: nowhere: each rank goes back to its own best weight, and they never agree

# %%
PREDICTION_2 = ""
PERIOD = 1

# %% [markdown]
# ## 3. A strong spring
# Four models and their center are tied by springs: each exchange moves every model towards the center by the
# fraction below of its distance, and the center by the sum of the opposite moves. Without any training all of
# them soon meet. Edit: the fraction 0.6. What happens then, from exchange to exchange?
#
# - a: they meet sooner: each model goes more than half of the way
# - b: they oscillate around the place where they would meet, always at the same distance
# - c: they oscillate, and the distance grows each time

# %%
PREDICTION_3 = ""
ALPHA = 0.1

# %% [markdown]
# ## 4. Write local SGD
# Each rank has its own gradient, a function of the weight, and its own model. In a step a rank moves its
# model by -rate * gradient(w). After every `period` steps, and at the end, all models become their mean.
#
# Prediction: the two ranks of question 2, an average every 8 steps. With a rate of 0.05 they end at 0.633,
# and not at the best weight, 0.8. With a rate of 0.005, and as many steps as they need, where do they end?
#
# - a: at 0.633 again: the rate only changes how soon they end
# - b: nearer to 0.8
# - c: nearer to 0.5
#
# Edit: write the function, in 5 to 15 lines. So far it returns the weight at the start.

# %%
PREDICTION_4 = ""


def local_sgd(start, gradients, rate, steps, period):
    """The weight after so many steps; ``gradients`` has a function of the weight for each rank."""
    return start


if __name__ == "__main__":
    print("two ranks:", local_sgd(0.5, [lambda w: 2 * w, lambda w: 8 * (w - 1)], 0.1, 50, 8))
