"""Where everything would live, and what speaks against it. Pure: values in, values out."""
