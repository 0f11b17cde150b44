"""Evidence learned from features: SPRT-TANDEM networks."""
