variable "name" {
  type    = string
  default = "Terraform"
}

output "words" {
  value = "hello from ${var.name}"
}
