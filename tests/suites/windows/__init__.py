"""loadtest/windows with few keys: exactness, rates and expiry of the engines that it measures."""
