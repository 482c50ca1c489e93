public final class Main {
    record Greeting(String name) {
        String words() {
            return "hello from " + name;
        }
    }

    public static void main(String[] arguments) {
        System.out.println(new Greeting("Java").words());
    }
}
