// Bundles the page with JupyterLab's notebook into the folder of its argument: index.html and what
// it loads. NODE_PATH names the folder of the packages.
'use strict';
const fs = require('fs');
const path = require('path');
const esbuild = require('esbuild');

// The packages' style sheets write "~" before the name of a package.
const tilde = {
  name: 'tilde',
  setup(build) {
    build.onResolve({ filter: /^~/ }, (found) => build.resolve(found.path.slice(1), { kind: found.kind, resolveDir: found.resolveDir }));
  },
};

async function main(folder) {
  await esbuild.build({
    entryPoints: ['index.js', 'light.css', 'dark.css'].map((name) => path.join(__dirname, name)),
    outdir: folder,
    bundle: true,
    nodePaths: [process.env.NODE_PATH],
    plugins: [tilde],
    loader: { '.svg': 'text', '.woff': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl', '.eot': 'dataurl', '.png': 'dataurl' },
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    logLevel: 'error',
  });
  fs.copyFileSync(path.join(__dirname, 'index.html'), path.join(folder, 'index.html'));
}

main(process.argv[2]).catch((err) => {
  process.stderr.write(`${err.stack}\n`);
  process.exit(1);
});
