"""The learned cost model, on what the prior gets wrong: XGBoost's trees, their ensemble and trust."""
