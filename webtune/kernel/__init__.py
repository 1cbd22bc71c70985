"""What users write: kernels, their spaces of parameters, and the arguments they run on."""
