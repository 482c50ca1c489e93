fn words(name: &str) -> String {
    format!("hello from {name}")
}

fn main() {
    println!("{}", words("Rust"));
}
