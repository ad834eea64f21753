"""Pictures for people: units, and how a tuning run looks while it goes on. Only `api` and `cli` know it."""
