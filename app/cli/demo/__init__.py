"""`paceline demo`: the whole way of a request on a small real model, in under half a minute."""
