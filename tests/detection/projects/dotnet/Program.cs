Console.WriteLine("hello from .NET");
