"""Measurements over time.

1. `series`       classifies whole series, or gives a number, by random kernels or convolutions; `speech` does so for spectrograms.
2. `forecasting`  continues series by one of the `forecast_networks` or the `patch_transformer`, beside the predictors of
                  `trivial_forecasts`.
"""
