"""What a sandbox may reach: rules, presets, what they mean for one connection or request."""
