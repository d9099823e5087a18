"""As much of Ray as a driver of `dp2ddp launch --on ray` meets. Ray itself was tried by hand (docs/launch.md)."""
