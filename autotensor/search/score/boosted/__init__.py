"""The learned cost model: XGBoost on what the prior gets wrong."""
