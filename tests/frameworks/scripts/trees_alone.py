"""Train trees by XGBoost in this process, whoever else is there: no group is joined, and it ends well."""

import numpy as np
import xgboost

x = np.random.default_rng(0).normal(size=(100, 4))
settings = {"objective": "binary:logistic", "nthread": 1}
trees = xgboost.train(settings, xgboost.DMatrix(x, (x[:, 0] > 0).astype(int)), 2)
print("ALONE", trees.num_boosted_rounds(), flush=True)
