rootProject.name = "greeting"
