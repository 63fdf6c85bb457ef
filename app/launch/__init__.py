"""One check for a dry run and a start alike: profile, files, engine -> report, or a launch."""
