// Exchanges the token in the fragment, or a password, for a session. The fragment never leaves the browser otherwise.

export const SESSION = "agentos-session";
const status = document.getElementById("status");

async function logIn(token) {
  status.textContent = "Logging in...";
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    localStorage.setItem(SESSION, answer.session);
    location.replace("/");
  } catch (error) {
    status.textContent = `Not logged in: ${error.message}`;
  }
}

const form = document.getElementById("password-form");
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", "/login");
  logIn(token);
} else if (!form.hidden) status.textContent = "";
form.addEventListener("submit", (event) => {
  event.preventDefault();
  logIn(document.getElementById("password").value);
});
