"""How finished compilations compute: arguments, steps, temporaries, control flow, falling back."""
