// A host of MCP Apps: `node host.mjs BROWSER COMMAND…` shows every app of a server in a browser, presses its
// buttons, and prints what there was to see, as JSON.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const [executablePath, command, ...args] = process.argv.slice(2);
const UI = "io.modelcontextprotocol/ui";
const KIND = "text/html;profile=mcp-app";

const made = await build({
  entryPoints: [fileURLToPath(new URL("page.mjs", import.meta.url))],
  bundle: true,
  write: false,
  format: "iife",
  nodePaths: [fileURLToPath(new URL("node_modules", import.meta.url))],
});
const script = made.outputFiles[0].text;

const client = new Client({ name: "host", version: "1" }, { capabilities: { extensions: { [UI]: { mimeTypes: [KIND] } } } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));

const answers = {
  "tools/call": (params) => client.callTool(params),
  "resources/read": (params) => client.readResource(params),
};
const pages = createServer(async (request, response) => {
  if (request.url !== "/ask") {
    response.setHeader("content-type", "text/html");
    return response.end(`<!doctype html><body style="margin:0"><script>${script.replaceAll("</script", "<\\/script")}</script>`);
  }
  let body = "";
  for await (const part of request) body += part;
  const { method, params } = JSON.parse(body);
  const said = await answers[method](params).then((result) => ({ result }), (fault) => ({ error: String(fault) }));
  response.end(JSON.stringify(said));
});
await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve));

// Times and random numbers differ from one look to the next.
const steady = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME").replace(/\s+/g, " ").trim();

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const found = {};
try {
  for (const tool of (await client.listTools()).tools) {
    const uri = tool._meta?.ui?.resourceUri;
    if (uri === undefined) continue;
    const { contents } = await client.readResource({ uri });
    const result = await client.callTool({ name: tool.name, arguments: {} });
    const page = await browser.newPage({ viewport: { width: 640, height: 720 } });
    await page.goto(`http://127.0.0.1:${pages.address().port}/`);
    const app = await page.evaluate(([html, shown]) => window.show(html, {}, shown), [contents[0].text, result]);
    const frame = page.frames()[1];
    await frame.waitForLoadState();
    const before = steady(await frame.locator("body").innerText());
    for (const button of await frame.locator("button:visible").all()) {
      await button.click({ timeout: 10_000 });
      await page.waitForTimeout(500);
    }
    const after = steady(await frame.locator("body").innerText());
    found[tool.title ?? tool.name] = {
      app,
      mimeType: contents[0].mimeType,
      contents: createHash("sha256").update(contents[0].text).digest("hex").slice(0, 16),
      before,
      after,
      heard: await page.evaluate(() => window.heard.map(([kind]) => kind)),
    };
    await page.close();
  }
} finally {
  await browser.close();
  pages.close();
  await client.close();
}
console.log(JSON.stringify(found, null, 1));
process.exit(0);
