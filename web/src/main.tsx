import "@fontsource-variable/geist/wght.css";
import "@fontsource-variable/geist-mono/wght.css";
import "./styles/base.css";
import "./styles/mantine.css";
import "./styles/tokens.css";
import "./styles/components.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App.tsx";
import { keepFocus } from "./lib/keep-focus.ts";
import { startServiceWorker } from "./lib/push.ts";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
keepFocus();
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);

// After the first screen, which needs the network more.
window.addEventListener("load", () => void startServiceWorker());
