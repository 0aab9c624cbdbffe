"""One pass over the rows, which counts them and gathers the statistics that encoders need.

1. `partition`    runs in Spark's tasks, and makes one summary of all partitions', column by column; Spark sums the value counts where they
                  are many. It also tells whether a key repeats.
2. `gather`       merges both on the driver.
3. For the page about the data, `page_summary` sums up what it shows: `row_sample` samples rows, `value_counts` counts the values of
                  categories in every split, and `leakage` finds features that several splits have.

All of it is exact, so the result does not depend on partitions or their order. The samples decide nothing else.
"""
