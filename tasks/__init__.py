"""What is to be made faster: tasks, their workloads and tolerances, and candidates for them."""
