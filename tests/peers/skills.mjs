// A host of skills (SEP-2640), on the TypeScript SDK: `node skills.mjs PACKAGES MODE COMMAND…` reads every file of each
// skill of a server, which the SDK compares with its digest, and prints the skills as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, mode, command, ...args] = process.argv.slice(2);
const { resolve } = createRequire(`${packages}/`);
const load = (part) => import(pathToFileURL(resolve(`@modelcontextprotocol/client${part}`)));
const { Client } = await load("");
const { StdioClientTransport } = await load("/stdio");
const { SkillsClient } = await load("/ext/skills");

const client = new Client(
  { name: "host", version: "1" },
  { versionNegotiation: { mode: mode === "legacy" ? "legacy" : { pin: mode } } },
);
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));
const skills = new SkillsClient(client);
const found = [];
for (const skill of (await skills.list()).skills) {
  const verified = [];
  for (const { uri } of skill.resources) verified.push((await skills.read(skill, uri)).verified);
  const again = (await skills.get(skill.uri)).skill;
  const { resources } = await skills.readDirectory(skill.uri.slice(0, -"/SKILL.md".length));
  found.push({
    uri: skill.uri,
    verified,
    same: JSON.stringify(again) === JSON.stringify(skill),
    children: resources.map(({ name }) => name),
  });
}
console.log(JSON.stringify({ supported: skills.supported, found }));
await client.close();
