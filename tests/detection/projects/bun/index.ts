console.log(`hello from Bun`);
