// The TypeScript SDK's client: at each address it connects, lists and makes the calls it is told, and prints what
// it saw there as JSON, a line for each. A grant of "found" stands for the one that the search before it brought.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { packages, mode, visits } = JSON.parse(process.argv[2]);
const resolved = createRequire(`${packages}/`).resolve("@modelcontextprotocol/client");
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(resolved));

for (const { url, calls } of visits) {
  const client = new Client(
    { name: "peer", version: "1" },
    { versionNegotiation: { mode: mode === "legacy" ? "legacy" : { pin: mode } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  const results = [];
  let found;
  for (const [name, given] of calls) {
    const args = given.grant === "found" ? { ...given, grant: found } : given;
    try {
      const result = await client.callTool({ name, arguments: args });
      found = result.structuredContent?.resolved?.[0]?.grant ?? found;
      results.push({ text: result.content.map((block) => block.text ?? "").join("\n"), error: result.isError ?? false });
    } catch (fault) {
      results.push({ text: String(fault.message), code: fault.code });
    }
  }
  console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), results }));
  await client.close();
}
