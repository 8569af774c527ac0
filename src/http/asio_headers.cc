// Nothing: this file only makes the build precompile the headers of its target.
