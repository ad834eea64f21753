"""The learned cost model of the prior's error: XGBoost's trees, their ensemble and trust."""
