<?php

declare(strict_types=1);

function words(string $name): string
{
    return "hello from {$name}";
}

echo words('PHP'), "\n";
