"""Reading and writing one partition: admission, long polls, slices, markers."""
