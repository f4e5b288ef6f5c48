"""What went wrong in T1, done again in small: each module has the fault of one case, and `notebooks/failures` tells it.

A notebook shows the symptom, the first guess that was wrong, the mechanism on real processes and files, and then the
part of t1core that stops it on the same input. Faults live here and nowhere else; no campaign imports them.
"""
