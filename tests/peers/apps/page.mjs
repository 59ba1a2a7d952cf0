// The page of a host: shows one app in a frame, by the SDK's bridge, and asks the program around it for the server.

import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";

const ask = async (method, params) => {
  const answer = await fetch("/ask", { method: "POST", body: JSON.stringify({ method, params }) });
  const said = await answer.json();
  if (said.error) throw new Error(said.error);
  return said.result;
};

window.show = async (html, input, result) => {
  const heard = [];
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-forms");
  frame.style.cssText = "width: 640px; height: 720px; border: 0";
  document.body.replaceChildren(frame);
  const bridge = new AppBridge(null, { name: "host", version: "1" }, { serverTools: {}, serverResources: {}, openLinks: {}, logging: {} });
  const initialized = new Promise((resolve) => (bridge.oninitialized = resolve));
  const note = (kind, value) => (heard.push([kind, value]), {});
  bridge.oncalltool = (params) => (note("tools/call", params.name), ask("tools/call", params));
  bridge.onreadresource = (params) => (note("resources/read", params.uri), ask("resources/read", params));
  bridge.onmessage = async (params) => note("message", params.content);
  bridge.onopenlink = async (params) => note("link", params.url);
  bridge.onupdatemodelcontext = async (params) => note("context", params.content ?? null);
  bridge.onloggingmessage = (params) => note("log", params.level);
  // The frame's own window is only there once it is in the page, and its script only once the host listens.
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = html;
  await initialized;
  await bridge.sendToolInput({ arguments: input });
  await bridge.sendToolResult(result);
  window.heard = heard;
  return bridge.getAppVersion();
};
